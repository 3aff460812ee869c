"""What zerocore knows of other libraries, a file for each. None of these files imports its library: a module counts if the
script has imported it."""
