from __future__ import annotations

import pytest

from rskip.analysis.measurement import Measurement, read_measurement
from rskip.settings.errors import SettingError


def test_json_and_csv(tmp_path):
    rows = [{"model": "sas", "block": 1, "gradient": 0.123456789, "beta": None}, {"model": "1xskip", "block": 2,
             "gradient": 1e-12, "beta": 2.0}]  # fmt: skip
    measurement = Measurement(analysis="gradients", conditions={"examples": 3}, rows=rows)
    measurement.write(f"{tmp_path}/a.json")
    assert read_measurement(f"{tmp_path}/a.json") == read_measurement(tmp_path / "a.json") == measurement
    measurement.write(tmp_path / "a.csv")
    text = (tmp_path / "a.csv").read_text()
    assert text == "model,block,gradient,beta\nsas,1,0.12346,\n1xskip,2,1e-12,2.0\n"
    (tmp_path / "b.json").write_text('{"analysis": "gates", "rows": 3}')
    with pytest.raises(SettingError, match=r"b\.json.*(rows|conditions)"):
        read_measurement(tmp_path / "b.json")
