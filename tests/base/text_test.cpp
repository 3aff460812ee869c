#include "zero/base/text.h"

#include <doctest/doctest.h>

using zero::printable;

TEST_CASE("printable escapes and cuts") {
  CHECK(printable("a\nb\xc3\xa9") == "a\\x0ab\\xc3\\xa9");
  CHECK(printable("abcdef", 3) == "abc...");
}
