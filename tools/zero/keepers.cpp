#include "tools/zero/keepers.h"

#include <algorithm>
#include <charconv>

namespace zero::tool {
namespace {

std::vector<Host> with_this_machine(std::vector<Host> hosts) {
  if (std::ranges::none_of(hosts, &Host::local)) {
    hosts.emplace_back();
    hosts.back().local = true;
  }
  return hosts;
}

}  // namespace

Keepers::Keepers(const std::string& job, HostLinks& links, const std::vector<Host>& hosts)
    : links_(links),
      hosts_(with_this_machine(hosts)),
      own_(job, hosts_.size() > 1, [this](const std::string& line) { take_line(line); }) {}

void Keepers::add_sources(std::vector<pollfd>& sources) const {
  if (own_.output() >= 0) sources.push_back({own_.output(), POLLIN, 0});
}

void Keepers::take_line(const std::string& line) {
  constexpr std::string_view port = "port ", newest = "newest ";
  if (line == "ended") own_contact_.clear();
  if (line.starts_with(port)) own_contact_ = line.substr(port.size());
  if (!line.starts_with(newest)) return;
  std::int64_t step = -1;
  std::from_chars(line.data() + newest.size(), line.data() + line.size(), step);
  newest_ = step;
}

std::string Keepers::contact(const Host& host) const {
  return host.local ? own_contact_ : links_.keeper(host.name);
}

bool Keepers::ready() const {
  return std::ranges::all_of(hosts_, [this](const Host& host) {
    return (!host.local && !links_.answers(host.name)) || !contact(host).empty();
  });
}

void Keepers::send(const Host& host, const std::string& line) {
  if (host.local)
    own_.send(line);
  else
    links_.send(host.name, "keeper " + line);
}

// The next host in the order of the ranks gets a host's copies. A machine without a name is not in
// the list of hosts, and has no ranks.
void Keepers::begin(std::int64_t generation, const std::vector<Host>& with_ranks) {
  const auto place = [&](const Host& host) {
    const auto found = std::ranges::find(with_ranks, host.name, &Host::name);
    return found == with_ranks.end() ? -1 : static_cast<int>(found - with_ranks.begin());
  };
  const int count = static_cast<int>(with_ranks.size());
  for (const Host& host : hosts_) {
    if (contact(host).empty()) continue;
    const int own = place(host);
    std::string others;
    int number = 0, next = -1;
    for (const Host& other : hosts_) {
      if (other.name == host.name || other.name.empty() || contact(other).empty()) continue;
      if (own >= 0 && place(other) == (own + 1) % count) next = number;
      others += " " + other.name + " " + contact(other);
      ++number;
    }
    send(host, "peers " + std::to_string(generation) + " " + std::to_string(next) + others);
  }
}

void Keepers::search() {
  newest_.reset();
  own_.send("newest");
}

}  // namespace zero::tool
