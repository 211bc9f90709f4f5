"""Cancels an execution in a kernel's file that another process serves, and says so."""

from support.children import arguments, say

from rebuno_sync.kernel import Kernel

given = arguments()
with Kernel(given["db"]) as kernel:
    kernel.cancel(given["execution"])
    say("cancelled")
