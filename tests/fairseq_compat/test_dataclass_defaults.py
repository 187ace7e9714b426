"""Patch of `mutable default ... use default_factory`."""

from __future__ import annotations

import sys

import pytest


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 lets fairseq's dataclasses pass")
def test_import_fails_without_the_patch(python):
    process = python("import fairseq", without="dataclass-defaults")
    assert process.returncode == 1
    assert "mutable default <class 'fairseq.dataclass.configs.CommonConfig'>" in process.stderr


def test_import_works_and_defaults_stay_instances(python):
    process = python(
        """
        import dataclasses
        before = dataclasses.dataclass
        from fairseq.dataclass.configs import CommonConfig, FairseqConfig
        assert dataclasses.dataclass is before
        field = FairseqConfig.__dataclass_fields__["common"]
        print(type(field.default) is CommonConfig, field.default_factory is dataclasses.MISSING)
        print(CommonConfig() == CommonConfig(), CommonConfig(seed=2) == CommonConfig())
        """,
        fairseq=False,
    )
    assert process.stdout == "True True\nTrue False\n", process.stderr


def test_configurations_of_users_may_be_defaults_and_other_dataclasses_may_not(python):
    process = python(
        """
        from dataclasses import dataclass
        from fairseq.dataclass import FairseqDataclass

        @dataclass
        class Mine(FairseqDataclass):
            width: int = 3

        @dataclass
        class Outer(FairseqDataclass):
            mine: Mine = Mine()

        print(Outer().mine.width)

        @dataclass
        class Plain:
            width: int = 3

        try:
            @dataclass
            class Other:
                plain: Plain = Plain()
        except ValueError as error:
            print(str(error).partition(" <")[0])
        else:
            print("allowed")
        """
    )
    assert process.stdout == ("3\nmutable default\n" if sys.version_info >= (3, 11) else "3\nallowed\n")
