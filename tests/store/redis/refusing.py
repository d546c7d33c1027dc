"""A server in front of another that refuses some commands, in the words of other products."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Self


class RefusingServer:
    """Passes commands on to a server, except those for which it has an error or an answer."""

    def __init__(
        self, port: int, errors: Mapping[str, str], answers: Mapping[str, str] | None = None
    ) -> None:
        self._target = port
        self._answers = {name.encode(): text.encode() for name, text in (answers or {}).items()}
        self._errors = {command.encode(): error.encode() for command, error in errors.items()}
        self._server: asyncio.Server | None = None
        self.refused: list[str] = []

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"redis://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/0"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, commands = await asyncio.open_connection("127.0.0.1", self._target)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            async with asyncio.TaskGroup() as group:
                back = group.create_task(_copy(answers, writer))
                await self._pass_on(reader, writer, commands)
                back.cancel()
        commands.close()
        writer.close()

    async def _pass_on(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        commands: asyncio.StreamWriter,
    ) -> None:
        while head := await reader.readline():
            text, words = head, list[bytes]()
            for _ in range(int(head[1:])):
                size = await reader.readline()
                word = await reader.readexactly(int(size[1:]) + 2)
                text += size + word
                words.append(word[:-2])
            if error := self._errors.get(words[0].upper()):
                self.refused.append(words[0].decode())
                writer.write(b"-" + error + b"\r\n")
            elif (answer := self._answers.get(words[0].upper())) is not None:
                writer.write(b"$%d\r\n%b\r\n" % (len(answer), answer))
            else:
                commands.write(text)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
