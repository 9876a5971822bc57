"""What runs around sandboxed code: a program of its own, started by `gateway_container.sandbox`, of the standard library only.

`keeper.main` reads one line of JSON (a `Spec`) from its standard input, builds the sandbox and runs the
spec's program in it, with the three standard streams as they are. Three processes come of it: the keeper, outside, which
ends the sandbox when it is told to or when the gateway dies; the first process of the sandbox's PID namespace, with which
all others end; and the program.
"""
