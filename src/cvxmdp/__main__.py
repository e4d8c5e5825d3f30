"""``python -m cvxmdp`` is ``cvxmdp``."""

from cvxmdp.cli import main

if __name__ == "__main__":
    main()
