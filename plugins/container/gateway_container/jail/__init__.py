"""The program around sandboxed code. Started by `gateway_container.sandbox`; uses the standard library only.

`keeper.main` reads one line of JSON (a `Spec`) from its standard input, builds the sandbox and runs the spec's
program in it, with the same standard streams. There are three processes: the keeper, outside, which ends the
sandbox on request or when the gateway dies; the first process of the sandbox's PID namespace, with which all
others end; and the program.
"""
