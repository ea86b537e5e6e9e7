"""`flambeau hosts`: what hosts offer, their files, and commands on all of them."""
