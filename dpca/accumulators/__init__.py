"""What a pass adds up: `add` a panel, `merge` two spans' partials. NumPy only; knows no scheduler."""
