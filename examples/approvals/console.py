"""Shows what waits for a decision, and decides.

python examples/approvals/console.py                        # what waits
python examples/approvals/console.py alice grant            # grants all of it
python examples/approvals/console.py alice deny "too much"  # denies all of it
"""

import sys

from rebuno_sync.kernel import Kernel


def main(name: str = "", word: str = "", rationale: str = "") -> None:
    with Kernel() as kernel:
        for approval in kernel.list_approvals():
            print(approval.message, approval.target, approval.args)
            if word:
                decide = kernel.grant_approval if word == "grant" else kernel.deny_approval
                decide(approval.id, name, rationale)


if __name__ == "__main__":
    main(*sys.argv[1:])
