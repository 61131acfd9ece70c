"""The real Codex CLI with a home, a working directory and a configuration of its own."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import trio

from tests.codex.turnlane import environment

API_KEY = "sk-test-0123456789"
RUN_SECONDS = 60
NOTHING: Mapping[str, str] = MappingProxyType({})
UNSANDBOXED = ("--skip-git-repo-check", "--sandbox", "danger-full-access", "--json")
QUIET = """
check_for_update_on_startup = false
[analytics]
enabled = false
[history]
persistence = "none"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One finished run of `codex exec --json`."""

    code: int
    output: str
    errors: str

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.output.splitlines() if line.startswith("{")]

    @property
    def answers(self) -> list[str]:
        """What the agent said, message by message."""
        items = [event["item"] for event in self.events if event["type"] == "item.completed"]
        return [item["text"] for item in items if item["type"] == "agent_message"]

    @property
    def everything(self) -> str:
        return f"{self.output}\n{self.errors}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Codex:
    binary: Path
    root: Path
    variables: Mapping[str, str] = field(default_factory=dict)
    """More of its environment."""

    @property
    def home(self) -> Path:
        return self.root / "codex"

    @property
    def cwd(self) -> Path:
        return self.root / "work"

    def environment(self) -> dict[str, str]:
        named = {"CODEX_HOME": str(self.home), "TEST_KEY": API_KEY}
        return environment(self.root, **named, **self.variables)

    async def exec(
        self,
        *arguments: str,
        options: Sequence[str] = (),
        seconds: float = RUN_SECONDS,
        more: Mapping[str, str] = NOTHING,
    ) -> Run:
        """`codex OPTIONS exec ARGUMENTS` to its end, which must come by itself; `more` is for its
        environment."""
        command = [str(self.binary), *options, "exec", *arguments]
        with trio.move_on_after(seconds):
            done = await trio.run_process(
                command,
                stdin=subprocess.DEVNULL,
                capture_stdout=True,
                capture_stderr=True,
                check=False,
                cwd=self.cwd,
                env={**self.environment(), **more},
            )
            output, errors = done.stdout.decode(), done.stderr.decode()
            return Run(code=done.returncode, output=output, errors=errors)
        raise AssertionError(f"codex exec {arguments} ran for over {seconds} s")

    async def ask(
        self,
        prompt: str,
        *,
        options: Sequence[str] = (),
        seconds: float = RUN_SECONDS,
        more: Mapping[str, str] = NOTHING,
    ) -> Run:
        """One turn of a new thread, with no sandbox, as JSON."""
        return await self.exec(*UNSANDBOXED, prompt, options=options, seconds=seconds, more=more)


def _install(binary: Path, root: Path, config: str) -> Codex:
    codex = Codex(binary=binary, root=root)
    codex.home.mkdir(parents=True)
    codex.cwd.mkdir()
    (codex.home / "config.toml").write_text(config)
    return codex


def with_provider(
    binary: Path,
    root: Path,
    base_url: str,
    *,
    websockets: bool,
    model: str = "gpt-5.5",
    settings: str = "",
) -> Codex:
    """Codex with a model provider of its own at `base_url`; `settings` are more of its keys."""
    config = f"""
model = "{model}"
model_provider = "local"
{QUIET}
[model_providers.local]
name = "local"
base_url = "{base_url}"
wire_api = "responses"
env_key = "TEST_KEY"
supports_websockets = {str(websockets).lower()}
{settings}
"""
    return _install(binary, root, config)


def with_root_key(binary: Path, root: Path, base_url: str) -> Codex:
    """Codex with its built-in provider pointed at `base_url`, logged in with an API key."""
    config = f'model = "gpt-5.5"\nopenai_base_url = "{base_url}"\n{QUIET}'
    codex = _install(binary, root, config)
    (codex.home / "auth.json").write_text(json.dumps({"OPENAI_API_KEY": API_KEY}))
    return codex


def with_chatgpt_login(binary: Path, root: Path, base_url: str, refresh_url: str) -> Codex:
    """Codex with its built-in provider pointed at `base_url`; its login is to be written yet."""
    config = f'model = "gpt-5.5"\nopenai_base_url = "{base_url}"\n{QUIET}'
    codex = _install(binary, root, config)
    return replace(codex, variables={"CODEX_REFRESH_TOKEN_URL_OVERRIDE": refresh_url})
