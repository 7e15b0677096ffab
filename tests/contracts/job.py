"""Processes with a group of torch.distributed on loopback, each of which runs the same programs."""

from __future__ import annotations

import itertools
import os
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

from contracts.forked import SERVER

PATIENCE = 120.0  # seconds for one program


class Job:
    """So many ranks, one thread each; `run` has all of them run a program and returns what each one found.

    Args:
        count: how many.
        joined: whether they are in a group; if not, they are told of each other as `torchrun` does it, by
            variables, and join one by themselves.
    """

    def __init__(self, count: int, joined: bool = True) -> None:
        pipes = [SERVER.Pipe() for _ in range(count)]
        self._pipes = [mine for mine, _ in pipes]
        self.processes = [
            SERVER.Process(target=_serve, args=(rank, count, joined, theirs), daemon=True)
            for rank, (_, theirs) in enumerate(pipes)
        ]
        for process, (_, theirs) in zip(self.processes, pipes, strict=True):
            process.start()
            theirs.close()
        port = self._pipes[0].recv()
        for pipe in self._pipes[1:]:
            pipe.send(port)

    def run(self, program: Callable[..., Any], *arguments: Any) -> list[Any]:
        """A function of a module that ranks can import; arguments for all of them alike."""
        return self.run_each(program, [arguments] * len(self._pipes))

    def run_each(self, program: Callable[..., Any], arguments: list[tuple[Any, ...]]) -> list[Any]:
        """The same with arguments for each."""
        self._send(program, arguments)
        answers = [self.answer(rank) for rank in range(len(self._pipes))]
        for rank, (done, found) in enumerate(answers):
            if not done:
                raise RuntimeError(f"rank {rank}: {found}")
        return [found for _, found in answers]

    def start(self, program: Callable[..., Any], *arguments: Any) -> None:
        """Have them run a program that is not expected to come to an end."""
        self._send(program, [arguments] * len(self._pipes))

    def _send(self, program: Callable[..., Any], arguments: list[tuple[Any, ...]]) -> None:
        for pipe, own in zip(self._pipes, arguments, strict=True):
            pipe.send_bytes(pickle.dumps((program, own)))

    def answer(self, rank: int) -> tuple[bool, Any]:
        """Whether a rank came to an end of its program, and what it found or said."""
        if not self._pipes[rank].poll(PATIENCE):
            return False, "no answer"
        try:
            done, found = pickle.loads(self._pipes[rank].recv_bytes())
        except EOFError:
            return False, "ended"
        return done, found

    def end(self) -> None:
        for pipe in self._pipes:
            pipe.close()  # which ends them
        for process in self.processes:
            process.join(5.0)
            if process.is_alive():
                process.kill()
                process.join()


@contextmanager
def job(count: int, joined: bool = True) -> Iterator[Job]:
    ranks = Job(count, joined)
    try:
        yield ranks
    finally:
        ranks.end()


def _serve(rank: int, count: int, joined: bool, pipe: Connection) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    if rank == 0:
        store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        port = store.port
        pipe.send(port)
    else:
        port = pipe.recv()
        store = dist.TCPStore("127.0.0.1", port, is_master=False)
    if joined:
        dist.init_process_group("gloo", store=store, rank=rank, world_size=count)
    else:
        about = {"RANK": rank, "WORLD_SIZE": count, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        # The store is there already, as that of `torchrun` is.
        os.environ.update({name: str(value) for name, value in about.items()})
        os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "True"
    for _ in itertools.count():
        try:
            program, arguments = pickle.loads(pipe.recv_bytes())
        except EOFError:
            return
        try:
            answer = True, program(*arguments)
        except Exception as error:
            answer = False, f"{type(error).__name__}: {error}"
        pipe.send_bytes(pickle.dumps(answer))
