#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdlib>

// Memory and traffic are those of the stages, whatever the build was configured with; tests of
// strict mode ask for it.
int main(int argc, char** argv) {
  ::setenv("ZERO_STRICT", "0", 0);
  return doctest::Context(argc, argv).run();
}
