"""What happens to a command: functions that begin it, and disturb it at a moment, a write or a file that they draw."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from functools import partial

from workflows.campaigns.faults import hooks
from workflows.campaigns.faults.cases import Case
from workflows.campaigns.faults.subjects import Subject

Fault = Callable[[Case], None]
HURT = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)


def killed(case: Case) -> None:
    process = case.begin()
    case.moment(process)
    case.struck = process.signalled(signal.SIGKILL)


def killed_twice(case: Case) -> None:
    killed(case)
    case.processes[-1].end()
    again = case.subject.go_on(case)
    if again is not None:
        case.moment(again)
        again.signalled(signal.SIGKILL)


def told(case: Case) -> None:
    process = case.begin()
    case.moment(process)
    case.struck = process.signalled(case.draw.choice(HURT))


def within_a_write(act: Callable[[], None], on: bool = False) -> Fault:
    """Something happens while a file is written."""

    def fault(case: Case) -> None:
        step = case.draw.randint(1, case.undisturbed.writes)
        process = case.begin(partial(hooks.at_write, step, case.draw.random(), act, on))
        case.struck = process.end() != 0
        process.killed = process.end() == -signal.SIGKILL

    return fault


def limited(case: Case) -> None:
    """Beyond that no file can be written, also by libraries in C."""
    process = case.begin(partial(hooks.limited, int(2 ** case.draw.uniform(10, 18))))
    case.struck = process.end() != 0


def failing_reads(most: int) -> Fault:
    """The storage fails reads that follow each other, up to so many: four are more than dpca tries."""

    def fault(case: Case) -> None:
        first = case.draw.randint(1, max(1, case.undisturbed.reads))
        case.begin(partial(hooks.failing_reads, first, case.draw.randint(1, most) if most < 4 else 10**6)).end()
        case.struck = True

    return fault


def slow(case: Case) -> None:
    process = case.begin(partial(hooks.slow, case.draw.randrange(2**32), case.draw.uniform(0, 0.1)))
    if case.draw.random() < 0.5:
        case.moment(process, most=3)
        process.signalled(signal.SIGKILL)
    case.struck = True


def two(overwrite: bool = False, kills: bool = False) -> Fault:
    """Another process of the command begins somewhere in the work of the first."""

    def fault(case: Case) -> None:
        one = case.begin()
        if case.draw.random() < 0.7:
            case.moment(one, most=1)
        case.struck = one.runs
        other = case.start(case.subject.another(case) if overwrite else one.words)
        if kills:
            victim = case.draw.choice((one, other))
            case.moment(victim)
            victim.signalled(signal.SIGKILL)

    return fault


def stopped(case: Case) -> None:
    """A process that is stopped, while its user goes on without it, and comes late."""
    late = case.begin(hooks.impatient)
    case.moment(late)
    case.struck = late.signalled(signal.SIGSTOP)
    case.hooks = (hooks.impatient,)
    goes_on = case.draw.choice(("before", "meanwhile", "after"))
    if goes_on != "after":
        late.goes_on_in(case.draw.random() * case.undisturbed.seconds if goes_on == "meanwhile" else 0.0)
    process = case.subject.go_on(case)
    if process is not None:
        process.end()
    late.goes_on_in(0.0)


def killed_and_damaged(patterns: Callable[[Subject], Sequence[str]], how: str = "flip cut remove") -> Fault:
    """Killed, and then a file is damaged; not where all is finished, as nothing reads it then."""

    def fault(case: Case) -> None:
        case.draw.choice((killed, within_a_write(hooks.kill)))(case)
        case.processes[-1].end()
        case.struck = False
        if case.subject.has_begun(case.place) and not case.subject.is_finished(case):
            case.damage(case.a_file(*patterns(case.subject)), how)

    return fault


def damaged_meanwhile(case: Case) -> None:
    """Until the command has ended."""
    process = case.begin()
    case.moment(process, most=0.8)
    while process.runs and not case.subject.has_begun(case.place):
        time.sleep(0.002)
    if process.runs:
        case.damage(case.a_file(*case.subject.reads), "flip cut")
    process.end()
    case.repair()


def dead_worker(case: Case) -> None:
    assert case.cluster is not None
    with case.cluster.get_client() as client:
        client.wait_for_workers(2)
        victim = case.draw.choice(sorted(client.run(os.getpid).values()))
    process = case.begin()
    case.moment(process)
    case.struck = process.runs
    os.kill(victim, signal.SIGKILL)


def lost_scheduler(case: Case) -> None:
    """Its user goes on without one: where a command runs makes no difference to its bits."""
    assert case.cluster is not None
    process = case.begin()
    case.moment(process)
    case.struck = process.runs
    case.cluster.sync(case.cluster.scheduler.close)
    process.end()
    case.cluster = None


def damaged_result(case: Case) -> None:
    case.damage(case.a_file(*case.subject.results))
    case.begin().end()


FAULTS: dict[str, Fault] = {
    "kill -9": killed,
    "kill -9, and of what goes on": killed_twice,
    "kill -9 within a write": within_a_write(hooks.kill),
    "SIGTERM, SIGINT or SIGUSR1": told,
    "disk full within a write": within_a_write(hooks.disk_full),
    "disk full from a write on": within_a_write(hooks.disk_full, on=True),
    "files may not grow beyond a size": limited,
    "reads that fail, and heal": failing_reads(3),
    "reads that fail until the end": failing_reads(4),
    "slow storage, and kill -9": slow,
    "two at a time": two(),
    "two at a time, one of them kill -9": two(kills=True),
    "two at a time, one with --overwrite": two(overwrite=True),
    "stopped, and goes on late": stopped,
    "kill -9, unfinished work damaged": killed_and_damaged(Subject.unfinished),
    "kill -9, input damaged": killed_and_damaged(lambda subject: subject.reads, "flip cut"),
    "input damaged meanwhile": damaged_meanwhile,
    "a result that it reads damaged": damaged_result,
}
ON_A_CLUSTER: dict[str, Fault] = {"kill -9 of a worker": dead_worker, "the end of the scheduler": lost_scheduler}
FAULTS |= ON_A_CLUSTER
