"""The events of a complete shell call."""

from __future__ import annotations

import msgspec

from gateway.assembly.item_builders.announced import EventCollector
from gateway.wire import events, items


def announce_commands(item: items.ShellCall, output_index: int, writer: EventCollector) -> None:
    """Append all events of a shell call, ending with its `output_item.done`."""
    empty = msgspec.structs.replace(item.action, commands=[])
    begun = msgspec.structs.replace(item, action=empty, status="in_progress")
    out, take = writer.out, writer.next
    out.append(
        events.OutputItemAdded(sequence_number=take(), output_index=output_index, item=begun)
    )
    for index, command in enumerate(item.action.commands):
        out.append(
            events.ShellCallCommandAdded(
                sequence_number=take(),
                output_index=output_index,
                command_index=index,
                command="",
            )
        )
        if command:
            out.append(
                events.ShellCallCommandDelta(
                    sequence_number=take(),
                    output_index=output_index,
                    command_index=index,
                    delta=command,
                )
            )
        out.append(
            events.ShellCallCommandDone(
                sequence_number=take(),
                output_index=output_index,
                command_index=index,
                command=command,
            )
        )
    out.append(events.OutputItemDone(sequence_number=take(), output_index=output_index, item=item))
