#include "tools/zero/hosts.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <sstream>
#include <string_view>

#include "config_schemas/keys.h"
#include "zero/base/error.h"
#include "zero/base/text.h"

namespace zero::tool {
namespace {

using Words = std::vector<std::string>;

// Open MPI's names of a host's properties.
constexpr std::array<std::string_view, 5> slot_keys = {"slots", "slot", "count", "cpus", "cpu"};
constexpr std::array<std::string_view, 4> most_keys = {"max_slots", "max-slots", "slots_max",
                                                       "slots-max"};
constexpr std::array<std::string_view, 4> user_keys = {"user", "username", "user_name",
                                                       "user-name"};

template <class Names>
bool is_one_of(const Names& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

// A line of a hostfile.
struct Line {
  const HostfileSource& source;
  int number;

  [[noreturn]] void refuse(const std::string& problem) const {
    throw ConfigError("hostfile " + source.name + ":" + std::to_string(number) + ": " + problem);
  }
  std::string expected() const {
    return source.kind == LauncherKind::open_mpi ? "NAME, or NAME slots=N" : "NAME, or NAME:N";
  }
  // The remote shell must not take the name for an option.
  std::string user(const std::string& name) const {
    if (name.empty() || name.front() == '-')
      refuse("\"" + printable(name) + "\" is not the name of a user");
    return name;
  }
  int slots(const std::string& digits) const {
    int value = 0;
    const char* end = digits.data() + digits.size();
    const auto [stop, error] = std::from_chars(digits.data(), end, value);
    if (error != std::errc() || stop != end || value < 1 || value > config_schemas::most_ranks)
      refuse("\"" + printable(digits) + "\" is not a number of slots; expected 1 to " +
             std::to_string(config_schemas::most_ranks));
    return value;
  }
};

std::string without_comment(std::string line) {
  line.resize(std::min(line.find('#'), line.size()));
  return std::string(trimmed(line));
}

// Splits a line; "slots = 2" is one property, as for Open MPI.
Words words_of_line(const std::string& line) {
  std::string joined;
  for (const char c : line) {
    if (c == '=')
      while (!joined.empty() && (joined.back() == ' ' || joined.back() == '\t')) joined.pop_back();
    const bool blank = c == ' ' || c == '\t';
    if (!blank || joined.empty() || joined.back() != '=') joined += c;
  }
  return words_of(joined);
}

bool is_ipv6(const std::string& name) {
  return std::ranges::count(name, ':') > 1;
}

// "[::1]" is "::1", and "[::1]:4" is that with slots.
void unwrap_brackets(std::string& name, std::string& slots, const Line& line) {
  if (!name.starts_with('[')) return;
  const std::size_t end = name.find(']');
  if (end == std::string::npos) line.refuse("\"" + printable(name) + "\" has no closing bracket");
  const std::string rest = name.substr(end + 1);
  if (!rest.empty() && !rest.starts_with(':'))
    line.refuse("\"" + printable(name) + "\": expected " + line.expected());
  slots = rest.empty() ? "" : rest.substr(1);
  name = name.substr(1, end - 1);
}

void check_name(const Host& host, const Line& line) {
  constexpr std::string_view letters =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:%";
  if (host.name.empty() || host.name.front() == '-' ||
      host.name.find_first_not_of(letters) != std::string::npos)
    line.refuse("\"" + printable(host.name) + "\" is not the name or address of a host; expected " +
                line.expected());
}

// Parses the first word: user@name, [address], and after a colon the slots of Hydra.
Host host_named(const std::string& word, const Line& line) {
  Host host;
  host.line = line.number;
  const std::size_t at = word.find('@');
  if (at != std::string::npos) host.user = line.user(word.substr(0, at));
  host.name = word.substr(at == std::string::npos ? 0 : at + 1);
  std::string slots;
  unwrap_brackets(host.name, slots, line);
  if (const auto colon = host.name.find(':'); colon != std::string::npos && !is_ipv6(host.name)) {
    slots = host.name.substr(colon + 1);
    host.name.resize(colon);
    if (slots.empty()) line.refuse("\"" + printable(word) + "\": expected " + line.expected());
  }
  check_name(host, line);
  if (slots.empty()) return host;
  if (line.source.kind == LauncherKind::open_mpi)
    line.refuse("Open MPI writes slots as \"" + host.name + " slots=" + printable(slots) + "\"");
  host.slots = line.slots(slots);
  return host;
}

void read_property(const std::string& word, const Line& line, Host& host,
                   std::optional<int>& most) {
  const std::size_t equals = word.find('=');
  const std::string key = lower_case(word.substr(0, equals));
  const std::string value = equals == std::string::npos ? "" : word.substr(equals + 1);
  const bool slots = is_one_of(slot_keys, key), at_most = is_one_of(most_keys, key);
  const bool user = is_one_of(user_keys, key);
  if (equals == std::string::npos || !(slots || at_most || user))
    line.refuse(
        "\"" + printable(word) + "\" is unknown; expected " + line.expected() +
        (line.source.kind == LauncherKind::open_mpi ? " (also max_slots=N, user=NAME)" : ""));
  if (line.source.kind != LauncherKind::open_mpi)
    line.refuse("this launcher writes slots as \"" + host.name + ":" + printable(value) + "\"");
  if (user ? !host.user.empty() : at_most ? most.has_value() : host.slots.has_value())
    line.refuse("\"" + printable(word) + "\" is given twice");
  if (user) host.user = line.user(value);
  if (at_most) most = line.slots(value);
  if (slots) host.slots = line.slots(value);
}

Host parse_line(const Words& words, const Line& line) {
  Host host = host_named(words.front(), line);
  std::optional<int> most;
  for (std::size_t i = 1; i < words.size(); ++i) read_property(words[i], line, host, most);
  if (most && host.slots && *most < *host.slots)
    line.refuse("max_slots=" + std::to_string(*most) +
                " is below slots=" + std::to_string(*host.slots));
  if (!host.slots) host.slots = most;
  return host;
}

// Open MPI 4 accepts no IPv6 address, and treats 127.0.1.1 as another host.
void choose_name(Host& host, const Line& line) {
  const bool loopback = host.name.starts_with("127.");
  if (host.local && (loopback || is_ipv6(host.name))) host.name = "localhost";
  if (is_ipv6(host.name) && line.source.kind == LauncherKind::open_mpi)
    line.refuse(host.name +
                ": Open MPI does not start ranks at an address of IPv6; expected the "
                "host's name, or its address of IPv4");
}

// Number of lines that list a host, and whether any gives slots.
struct Listed {
  int times = 1;
  bool with_slots = false;
};

void add(std::vector<Host>& hosts, std::vector<Listed>& listed, Host host, const Line& line) {
  const auto same = std::ranges::find_if(hosts, [&](const Host& other) {
    return host.local ? other.local : lower_case(other.name) == lower_case(host.name);
  });
  if (same == hosts.end()) {
    listed.push_back({1, host.slots.has_value()});
    hosts.push_back(std::move(host));
    return;
  }
  Listed& before = listed[static_cast<std::size_t>(same - hosts.begin())];
  const std::string again = host.name + " is listed in line " + std::to_string(same->line) +
                            " already" + (same->name == host.name ? "" : ", as " + same->name);
  if (host.slots || before.with_slots)
    line.refuse(again +
                ", and slots are given: expected one line with all of its slots, or one "
                "line without slots for each rank");
  if (host.user != same->user) line.refuse(again + ", with another user");
  ++before.times;
}

void count_slots(std::vector<Host>& hosts, const std::vector<Listed>& listed, int local_slots) {
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    Host& host = hosts[i];
    if (listed[i].times > 1) host.slots = listed[i].times;
    if (!host.slots && host.local) host.slots = local_slots;
  }
}

}  // namespace

std::vector<Host> parse_hostfile(const HostfileSource& source, const HostLookup& look_up) {
  constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";
  std::istringstream lines(source.text.starts_with(byte_order_mark) ? source.text.substr(3)
                                                                    : source.text);
  std::vector<Host> hosts;
  std::vector<Listed> listed;
  std::map<std::string, HostPlace> places;
  int number = 0;
  for (std::string text; std::getline(lines, text);) {
    const Line line{source, ++number};
    const Words words = words_of_line(without_comment(text));
    if (words.empty()) continue;
    Host host = parse_line(words, line);
    if (!places.contains(host.name)) places[host.name] = look_up(host.name);
    const HostPlace& place = places[host.name];
    if (!place.problem.empty())
      throw TopologyError("hostfile " + source.name + ":" + std::to_string(number) + ": host " +
                          host.name + " cannot be found: " + place.problem +
                          "; check the name, or give the host's address");
    host.local = place.local;
    choose_name(host, line);
    add(hosts, listed, std::move(host), line);
  }
  if (hosts.empty()) throw ConfigError("hostfile " + source.name + " names no host");
  count_slots(hosts, listed, source.local_slots);
  return hosts;
}

std::vector<std::string> hostfile_lines(const std::vector<Host>& hosts, LauncherKind kind) {
  std::vector<std::string> lines;
  for (const Host& host : hosts) {
    std::string line = (host.user.empty() ? "" : host.user + "@") + host.name;
    if (host.slots)
      line += (kind == LauncherKind::open_mpi ? " slots=" : ":") + std::to_string(*host.slots);
    lines.push_back(std::move(line));
  }
  return lines;
}

bool says_the_same(const std::string& text, const std::vector<std::string>& lines) {
  std::istringstream stream(text);
  std::size_t at = 0;
  for (std::string line; std::getline(stream, line);) {
    if (line.find('\r') != std::string::npos) return false;
    line = without_comment(line);
    if (line.empty()) continue;
    if (at == lines.size() || line != lines[at++]) return false;
  }
  return at == lines.size();
}

}  // namespace zero::tool
