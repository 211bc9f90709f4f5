"""The state-machine matrix: everything that can be written, in every state that there is.

``tables`` has all tables: rows (states, and how to get there) and columns (writes, and the rules of
``protocol.md`` that say how they are answered). ``test_matrix`` asks every cell in process and over
HTTP; ``test_columns`` sees to it that no write and no status is left out.
"""
