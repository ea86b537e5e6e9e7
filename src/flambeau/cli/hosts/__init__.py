"""`flambeau hosts`: checks of hosts, copies of files, and commands on all hosts."""
