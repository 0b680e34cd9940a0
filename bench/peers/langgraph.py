"""LangGraph: a graph of a model and a tool, with its checkpoints in SQLite."""

from importlib import import_module
from pathlib import Path
from typing import Any

from bench.peers.peer import Peer, call_id, serve, words

_CONFIG = {"configurable": {"thread_id": "one"}}


class _LangGraph:
    def __init__(self, graph: Any, connection: Any) -> None:  # noqa: ANN401 - its types are not installed here
        self._graph = graph
        self._connection = connection
        """It is closed when nobody has it."""

    async def append_turn(self, number: int) -> None:
        await self._graph.ainvoke({"messages": [("user", words(number))]}, _CONFIG)

    async def load(self) -> int:
        return len((await self._graph.aget_state(_CONFIG)).values["messages"])


async def _open(folder: Path) -> Peer:
    graphs: Any = import_module("langgraph.graph")
    messages: Any = import_module("langchain_core.messages")
    saver: Any = import_module("langgraph.checkpoint.sqlite.aio").AsyncSqliteSaver

    def model(state: dict[str, list[Any]]) -> dict[str, list[Any]]:
        number = len(state["messages"])
        if state["messages"][-1].type == "tool":
            return {"messages": [messages.AIMessage(words(number))]}
        call = {"name": "search", "args": {"query": "ordinary words", "limit": 5}, "id": call_id(number)}
        return {"messages": [messages.AIMessage(words(number), tool_calls=[call])]}

    def tool(state: dict[str, list[Any]]) -> dict[str, list[Any]]:
        last = state["messages"][-1]
        return {
            "messages": [messages.ToolMessage(words(len(state["messages"])), tool_call_id=last.tool_calls[0]["id"])]
        }

    def route(state: dict[str, list[Any]]) -> str:
        return "tool" if state["messages"][-1].tool_calls else graphs.END

    builder = graphs.StateGraph(graphs.MessagesState)
    builder.add_node("model", model)
    builder.add_node("tool", tool)
    builder.add_edge(graphs.START, "model")
    builder.add_edge("tool", "model")
    builder.add_conditional_edges("model", route)
    connection = saver.from_conn_string(str(folder / "checkpoints.db"))
    return _LangGraph(builder.compile(checkpointer=await connection.__aenter__()), connection)


if __name__ == "__main__":
    serve(_open)
