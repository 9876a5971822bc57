"""What a model may cite of the files of a container that it works in."""

from __future__ import annotations

from gateway.protocols import ContainerFileSource
from gateway_container.container import Container, Work
from gateway_container.containers import Containers
from gateway_container.kept import files
from gateway_container.kept.objects import ContainerFile


class Citable:
    """Of one session: with its first call all files that are there, then those that calls have written."""

    def __init__(self, containers: Containers, container: Container) -> None:
        self._containers = containers
        self._container = container
        self._begun = False

    async def after(self, work: Work) -> list[ContainerFileSource]:
        """What the result of a call whose `work` is done makes citable."""
        found = work.files
        if not self._begun:
            container_id = self._container.id
            rows = await self._containers.database.read(lambda c: files.all_of(c, container_id))
            found = [files.told(row) for row in rows]
            self._begun = True
        return [_source(each) for each in found]


def _source(file: ContainerFile) -> ContainerFileSource:
    return ContainerFileSource(container_id=file.container_id, file_id=file.id, path=file.path)
