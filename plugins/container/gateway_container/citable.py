"""Which files of a container a model may cite."""

from __future__ import annotations

from gateway.sdk import ContainerFileSource
from gateway_container.container import Container, SandboxUse
from gateway_container.containers import Containers
from gateway_container.library import files
from gateway_container.library.objects import ContainerFile


class Citable:
    """Citable files of one session: with the first call, all existing files; then those that calls have written."""

    def __init__(self, containers: Containers, container: Container) -> None:
        self._containers = containers
        self._container = container
        self._begun = False

    async def after(self, work: SandboxUse) -> list[ContainerFileSource]:
        """The files that became citable with the call that did `work`."""
        found = work.files
        if not self._begun:
            container_id = self._container.id
            rows = await self._containers.database.read(lambda c: files.rows_of(c, container_id))
            found = [files.file_object(row) for row in rows]
            self._begun = True
        return [_source(each) for each in found]


def _source(file: ContainerFile) -> ContainerFileSource:
    return ContainerFileSource(container_id=file.container_id, file_id=file.id, path=file.path)
