#include "tools/zero/host_lookup.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <memory>
#include <set>
#include <sstream>

#include "tools/zero/machine.h"
#include "tools/zero/process.h"
#include "zero/base/text.h"

namespace zero::tool {
namespace {

// Returns the address as text; empty for other families.
std::string address_text(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address == nullptr) return text;
  if (address->sa_family == AF_INET)
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text, sizeof text);
  if (address->sa_family == AF_INET6)
    inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, text,
              sizeof text);
  return text;
}

std::set<std::string> own_addresses() {
  std::set<std::string> addresses;
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return addresses;
  for (const ifaddrs* each = first; each != nullptr; each = each->ifa_next)
    addresses.insert(address_text(each->ifa_addr));
  freeifaddrs(first);
  addresses.erase("");
  return addresses;
}

bool is_own(const std::string& address) {
  static const std::set<std::string> own = own_addresses();
  return address.starts_with("127.") || address == "::1" || own.contains(address);
}

HostPlace resolved(const std::string& name) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* first = nullptr;
  if (const int error = getaddrinfo(name.c_str(), nullptr, &hints, &first); error != 0)
    return {false, gai_strerror(error)};
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> all(first, freeaddrinfo);
  for (const addrinfo* each = first; each != nullptr; each = each->ai_next)
    if (is_own(address_text(each->ai_addr))) return {true, ""};
  return {};
}

// Returns "" if ssh's configuration leaves the name unchanged; "?" if ssh connects by another host.
std::string ssh_name_of(const std::string& name) {
  std::istringstream settings(capture({"ssh", "-G", name}).text);
  std::string key, value, real;
  while (settings >> key && std::getline(settings >> std::ws, value)) {
    if ((key == "proxyjump" || key == "proxycommand") && value != "none") return "?";
    if (key == "hostname") real = value;
  }
  return real == name ? "" : real;
}

}  // namespace

HostPlace place_of(const std::string& name, bool by_ssh) {
  const std::vector<std::string> names = local_host_names();
  if (std::ranges::find(names, lower_case(name)) != names.end()) return {true, ""};
  HostPlace place = resolved(name);
  if (place.problem.empty()) return place;
  if (!by_ssh) return {};
  const std::string real = ssh_name_of(name);
  if (real == "?" || (!real.empty() && resolved(real).problem.empty())) return {};
  return place;
}

}  // namespace zero::tool
