"""`python -m fedhaw.settings` prints docs/settings.md."""

from fedhaw.settings.table import page

print(page(), end="")
