"""What a kernel promises to agents and operators, written once for every kernel and every road to
it.
"""
