// Numbers in readable form, the same in all output and independent of the locale. Amounts of bytes
// are in KiB, MiB and GiB, powers of 1024, and rates in GiB/s: on the terminal, in messages, in
// reports and in docs.
#pragma once

#include <concepts>
#include <string>

namespace zero {

// The shortest text that reads back as the same number: "0.001".
std::string shortest_text(double value);

inline constexpr double kibibyte = 1024, mebibyte = 1024 * kibibyte, gibibyte = 1024 * mebibyte;

struct ByteUnit {
  const char* name;
  double size;
};
// The unit for figures that belong together, chosen by the largest figure.
ByteUnit byte_unit(double largest);
// "1.50 MiB"
std::string byte_text(double bytes);
std::string byte_text(std::integral auto bytes) {
  return byte_text(static_cast<double>(bytes));
}

}  // namespace zero
