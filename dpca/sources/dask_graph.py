"""The graph of a Dask array as a dict of tasks, cut to what some blocks need, and computed block by block.

Dask slices an array by adding tasks to all of its graph, and optimizes that: what this costs grows with the whole array for each slab
that is read. Here a graph is optimized once, and a slab follows the dependencies of its blocks alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

import dask
import dask.array as da
from dask._task_spec import Alias, DataNode, GraphNode, Task, TaskRef
from dask.array.optimization import optimize
from dask.blockwise import optimize_blockwise
from dask.core import flatten
from dask.highlevelgraph import HighLevelGraph

from dpca.errors import InputError

Graph = dict[Any, Any]
"""Tasks by key."""
Futures = dict[Any, Any]
"""Blocks that a cluster has, by key: they are in no `Graph`."""

_PLAIN = (str, int, float, bool, tuple, slice, type, type(None))


def graph_of(array: da.Array, name: str) -> tuple[Graph, Futures]:
    """The optimized graph of an array.

    Parameters
    ----------
    name : of the array, for messages
    """
    keys = list(flatten(array.__dask_keys__()))
    graph: Any = array.__dask_graph__()
    if isinstance(graph, HighLevelGraph):
        # Optimized by layers before it is a dict, and not culled by layers, which takes time by the square of their number.
        graph = optimize_blockwise(graph, keys=set(keys))
        graph = dict(_in_tasks(graph, array))
    else:
        graph = dict(graph)
    futures = {key: value for key, value in graph.items() if is_future(value)}
    graph = dict(optimize(graph, keys))  # which drops futures, but keeps their keys
    within = {future.key: future for future in objects_in(graph) if is_future(future)}
    if within:  # arguments of tasks: each would connect to its scheduler where the task is sent
        names = {key: f"{key} of a cluster" for key in within}
        graph = {
            key: task if names.keys().isdisjoint(task.dependencies) else task.substitute(names)
            for key, task in graph.items()
        }
        futures |= {names[key]: future for key, future in within.items()}
    if any(type(task).__name__.startswith("P2P") for task in graph.values()):
        raise _shuffled(name)
    return graph, futures


def _in_tasks(graph: HighLevelGraph, array: da.Array) -> Iterator[tuple[Any, Any]]:
    """All tasks, with chunks changed by tasks where Dask would have workers exchange pieces among them all at the same time (P2P).

    It does so by itself where a client is active, and such a graph can't be computed in parts.
    """
    for layer in graph.layers.values():
        if type(layer).__name__ != "P2PRechunkLayer":  # a class of distributed, which may not be imported
            yield from layer.items()
            continue
        found: Any = layer
        before: da.Array = da.Array({}, found.name_input, found.chunks_input, dtype=array.dtype)
        with dask.config.set({"array.rechunk.method": "tasks"}):
            after = before.rechunk(found.chunks, method="tasks")
        yield from dict(after.__dask_graph__()).items()
        for key in flatten(after.__dask_keys__()):
            yield (found.name, *key[1:]), Alias((found.name, *key[1:]), key)


def _shuffled(name: str) -> InputError:
    return InputError(
        f"{name}: its graph has a shuffle between all workers (P2P), which can't be computed in parts",
        "Write it to Zarr once and give that, or persist() it if it fits the workers' memory.",
    )


def is_future(value: Any) -> bool:
    """Whether it is a block on a cluster."""
    # By name, without an import: a persisted array exists only where distributed is loaded already.
    return type(value).__name__ == "Future" and type(value).__module__.startswith("distributed")


def needed(graph: Graph, futures: Futures, keys: Iterable[Any]) -> tuple[Graph, Futures]:
    """Keys that some keys depend on."""
    tasks, blocks, to_do = Graph(), Futures(), list(keys)
    while to_do:
        key = to_do.pop()
        if key in tasks:
            continue
        if (task := graph.get(key)) is not None:
            tasks[key] = task
            to_do.extend(task.dependencies)
        elif key in futures:
            blocks[key] = futures[key]
    return tasks, blocks


def computed(graph: Graph, blocks: Mapping[Any, Any], keys: Iterable[Any]) -> Iterator[Any]:
    """The values of keys, one after another. A value is dropped once no later one needs it."""
    keys = list(keys)
    uses = Counter(chain(keys, *(task.dependencies for task in graph.values())))
    values = dict(blocks)

    def used(key: Any) -> None:
        uses[key] -= 1
        if not uses[key]:
            del values[key]

    for key in keys:
        to_do = [key]
        while to_do:
            top = to_do[-1]
            task = graph.get(top)
            if task is None or top in values:
                to_do.pop()
                continue
            missing = [one for one in task.dependencies if one not in values]
            if missing:
                to_do.extend(missing)
                continue
            values[top] = _value(task, values)
            for one in task.dependencies:
                used(one)
        yield values[key]
        used(key)


def _value(task: GraphNode, values: Mapping[Any, Any]) -> Any:
    """The value of a task, from those that it depends on."""
    if isinstance(task, Task) and task.has_subgraph():
        # A chain of tasks that was made one: Dask would put its few tasks in order again for each block, which takes longer than they do.
        inner, key, names, *given = task.args
        return next(computed(inner, dict(zip(names, (_argument(one, values) for one in given), strict=True)), [key]))
    return task({one: values[one] for one in task.dependencies})


def _argument(given: Any, values: Mapping[Any, Any]) -> Any:
    if isinstance(given, TaskRef):
        return values[given.key]
    return _value(given, values) if isinstance(given, GraphNode) else given


def objects_in(graph: Graph) -> Iterator[Any]:
    """Objects that tasks read from and that are no plain values, such as stored arrays: each once."""
    seen = set[int]()
    for node in graph.values():
        for found in _objects_of(node):
            if id(found) not in seen:
                seen.add(id(found))
                yield found


def _objects_of(node: Any) -> Iterator[Any]:
    if isinstance(node, DataNode):
        yield from _objects_of(node.value)
    elif isinstance(node, Task):
        for argument in (*node.args, *node.kwargs.values()):
            yield from _objects_of(argument)
    elif isinstance(node, dict):  # a chain of tasks that were made one
        for inner in node.values():
            yield from _objects_of(inner)
    elif is_future(node) or not isinstance(node, (*_PLAIN, GraphNode, TaskRef)):
        yield node
