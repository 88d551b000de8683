"""python -m dpca"""

from dpca.cli import main

main()
