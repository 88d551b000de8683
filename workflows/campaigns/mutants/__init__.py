"""Guards of dpca, removed one after the other, and the test that notices each.

    python -m workflows.campaigns.mutants [TESTS ...] [--only NAME] [--list]

First tests run once in a copy of the working tree whose statements say when they are reached (`reached`). Then, for each guard
(`guards`), those tests that reach it run in a copy without it, until one fails. So it goes on in rounds, with more tests for those
guards that nothing has noticed yet. A guard that nothing notices wants a test, or is none. What is known stays in build/mutants: a
campaign that was ended goes on there.
"""
