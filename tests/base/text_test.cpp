#include "zero/base/text.h"

#include <doctest/doctest.h>

using zero::printable;

TEST_CASE("printable escapes and cuts") {
  CHECK(printable("a\nb\xc3\xa9") == "a\\x0ab\\xc3\\xa9");
  CHECK(printable("abcdef", 3) == "abc...");
}

TEST_CASE("lower_case and trimmed") {
  CHECK(zero::lower_case("AdamW \xc3\x89") == "adamw \xc3\x89");
  CHECK(zero::trimmed(" \t a b\r\n") == "a b");
  CHECK(zero::trimmed(" \f") == "\f");
  CHECK(zero::trimmed("x\f", "\f") == "x");
  CHECK(zero::trimmed("  ").empty());
}
