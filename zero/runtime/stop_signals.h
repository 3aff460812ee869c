// The signals of a process that trains. Process-wide.
#pragma once

#include <span>

namespace zero::detail {

// From here on each of these signals requests a stop, see RuntimeOptions::catch_signals.
void request_stop_on(std::span<const int> numbers);
bool stop_requested();

// Ignores signals that would end the process without a message: a file that grows beyond the limit
// (SIGXFSZ), and output without a reader (SIGPIPE). The failing call then returns an error instead.
// A handler of the program is kept.
void ignore_system_signals();

}  // namespace zero::detail
