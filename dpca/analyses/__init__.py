"""Derived analyses of a kept Gram matrix, as users ask for them: by dates and names, with certificates, and with maps.

`samples` turns names into operators of `dpca.derived`. An analysis is one file in `kinds` (`kind` is the contract), and gives an answer
(`answers`): named arrays, the coefficients of maps, and a certificate. `kept` opens results, `maps` makes the components of any number of
answers in one pass over the data.
"""
