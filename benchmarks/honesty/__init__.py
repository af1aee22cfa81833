"""How honest intervals are: coverage and scores on tables whose weights are known, beside other methods.

    cells.toml -> cells -> draw(cell, number) -> method(cell, drawn, seed) -> scores -> columns of a JSON file -> report

A cell is a kind of table with a budget. Its tables are drawn from seeds from 100,000 on; settings of the product were
chosen on others. Tables do not depend on epsilon or on how many sites there are, so all methods see the same ones.
"""
