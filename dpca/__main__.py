"""python -m dpca"""

from dpca.cli.app import main

main()
