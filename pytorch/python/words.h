// Messages of the library as a program in Python reads them.
#pragma once

#include <string>

// Replaces the C++ names of calls by those that the package has for them.
std::string in_python(std::string message);
