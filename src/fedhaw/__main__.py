"""`python -m fedhaw` is `fedhaw`."""

from fedhaw.cli import main

if __name__ == "__main__":
    main()
