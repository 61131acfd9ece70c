"""`turnlane recall`: runs the harness and shows its report; exit 0 passed, 1 failed, 2 usage."""

import os
from collections.abc import Mapping
from functools import partial

import msgspec
import trio
from rich.console import Console
from rich.progress import Progress

from harness.recall.evidence import RunEvidence, passed
from harness.recall.faults import RecallTransport
from harness.recall.judge import judge
from harness.recall.options import Inject, Options, read_options
from harness.recall.plan import Pace, Plan, make_plan
from harness.recall.probe import Probe, Unreadable
from harness.recall.proxy import ProxyStartError, Target, open_proxy
from harness.recall.report import document, table
from harness.recall.run import Run, take_through
from harness.recall.stage import Stage
from harness.recall.upstream import UpstreamMemory, open_plan
from harness.recall.watch import Notes

LANES = 64
"""The default limit of the proxy: with so many sessions, one lane more must be refused."""


def main(argv: list[str] | None = None) -> int:
    """The exit code; argparse itself ends a wrong command line, with 2."""
    options, err = read_options(argv), Console(stderr=True)
    try:
        return trio.run(recall, options, os.environ, Console(), err)
    except* KeyboardInterrupt:
        err.print("interrupted: nothing was judged")
    return 1


async def recall(
    options: Options,
    environment: Mapping[str, str],
    out: Console,
    err: Console,
    pace: Pace | None = None,
) -> int:
    """Run, judge, report."""
    plan = make_plan(
        seed=options.seed,
        transport=options.transport,
        sessions=options.sessions,
        rounds=options.rounds,
        beyond=len(RecallTransport) if options.sessions == LANES else 0,
        fan_out=True,
        swap=options.inject is Inject.SWAP,
        pace=pace,
    )
    with Progress(console=err, transient=True) as bar:
        task = bar.add_task("recall", total=plan.requests)
        notes = Notes(progress=partial(bar.advance, task))
        try:
            evidence, log = await _gather(options, environment, plan, notes)
        except OSError as error:
            evidence, log = Unreadable(f"port {options.upstream_port}: {error}"), ""
    if isinstance(evidence, Unreadable):
        err.print(evidence.reason, log, sep="\n", markup=False, highlight=False, soft_wrap=True)
        return 1
    return _show(evidence, log, options, out, err)


def _show(evidence: RunEvidence, log: str, options: Options, out: Console, err: Console) -> int:
    checks = judge(evidence)
    out.print(table(evidence, checks))
    if options.json is not None:
        told = msgspec.json.encode(document(evidence, checks))
        options.json.write_bytes(msgspec.json.format(told, indent=2) + b"\n")
    if passed(checks):
        return 0
    if log:
        err.print(
            "the last words of the proxy:",
            log,
            sep="\n",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
    return 1


async def _gather(
    options: Options, environment: Mapping[str, str], plan: Plan, notes: Notes
) -> tuple[RunEvidence | Unreadable, str]:
    """Evidence, and the end of the proxy's log."""
    stage = Stage(session.thread_id for session in plan.waves)
    async with open_plan(plan, stage, options.upstream_port) as (upstream, port):
        if options.target is not None:
            target = Target(address=options.target)
            return await _load(target, plan, stage, upstream.memory, notes)
        module = "harness.recall.inject" if options.inject is Inject.LEAK else "proxy"
        try:
            async with open_proxy(port, environment, module) as target:
                return await _load(target, plan, stage, upstream.memory, notes)
        except ProxyStartError as failed:
            return Unreadable("the proxy did not start"), str(failed)


async def _load(
    target: Target, plan: Plan, stage: Stage, memory: UpstreamMemory, notes: Notes
) -> tuple[RunEvidence | Unreadable, str]:
    run = Run(
        plan=plan,
        target=target,
        stage=stage,
        memory=memory,
        notes=notes,
        probe=Probe(target.address),
    )
    return await take_through(run), target.log_tail()


if __name__ == "__main__":
    raise SystemExit(main())
