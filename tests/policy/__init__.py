"""Policies by themselves: bundles, globs, arguments, rules, tests of them."""
