"""The container and the service unit in deploy/ run a command that exists, as an ordinary user."""

from __future__ import annotations

import configparser
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from rskip.cli.main import build_parser

yaml = pytest.importorskip("yaml", reason="needs the extra translation")


def parsed(command: list[str]) -> Any:
    assert command[0] == "/opt/rskip/bin/rskip"
    return build_parser(command[1:]).parse_args(command[1:])


def test_the_container_serves_models_to_the_machine_only(root: Path) -> None:
    dockerfile = (root / "deploy/Dockerfile").read_text("utf-8")
    assert re.findall(r"^USER (\w+)", dockerfile, re.MULTILINE) == ["rskip"]
    entry = json.loads(re.findall(r"^ENTRYPOINT (.+)", dockerfile, re.MULTILINE)[-1])
    services = yaml.safe_load((root / "deploy/compose.yaml").read_text("utf-8"))["services"]
    service = services["rskip"]
    args = parsed([*entry, *service["command"]])
    assert (args.model, args.host, args.port) == (["/models/en-de"], "0.0.0.0", 8000)
    assert args.allowed_host == ["localhost"]
    assert service["read_only"] and service["cap_drop"] == ["ALL"] and "ports" not in service
    assert services["proxy"]["ports"] == ["127.0.0.1:8000:8000"] and service["deploy"]["replicas"] == 2
    caddy = (root / "deploy/Caddyfile").read_text("utf-8")
    assert re.findall(r"name (\w+)\s+port (\d+)", caddy) == [("rskip", "8000")]


def test_the_unit_serves_a_model_as_a_user_without_rights(root: Path) -> None:
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(root / "deploy/rskip.service", encoding="utf-8")
    service = unit["Service"]
    args = parsed(shlex.split(service["ExecStart"]))
    assert (args.model, args.host) == (["/srv/rskip/en-de"], "127.0.0.1")
    assert (service["Restart"], service["RestartPreventExitStatus"]) == ("always", "2")
    assert service["DynamicUser"] == "yes" and service["NoNewPrivileges"] == "yes"
