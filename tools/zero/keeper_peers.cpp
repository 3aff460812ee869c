#include "tools/zero/keeper_peers.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "zero/base/error.h"
#include "zero/checkpoint/format/digest.h"
#include "zero/checkpoint/format/manifest.h"

namespace zero::tool {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int token_seconds = 5, message_seconds = 15;     // limits of waiting for the peer
constexpr std::size_t piece_bytes = std::size_t{1} << 20;  // small enough to be digested in cache
constexpr std::int64_t longest_token = 256;
constexpr std::int64_t longest_message = checkpoint::max_manifest_bytes + (std::int64_t{1} << 20);

Descriptor connect_to(const KeeperPeer& peer, std::string& problem) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error =
          ::getaddrinfo(peer.host.c_str(), std::to_string(peer.port).c_str(), &hints, &found);
      error != 0) {
    problem = ::gai_strerror(error);
    return Descriptor(-1);
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> addresses(found, ::freeaddrinfo);
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    Descriptor connection(
        ::socket(each->ai_family, each->ai_socktype | SOCK_CLOEXEC, each->ai_protocol));
    const timeval limit{token_seconds, 0};
    ::setsockopt(connection.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    if (::connect(connection.get(), each->ai_addr, each->ai_addrlen) == 0) return connection;
    problem = std::strerror(errno);
  }
  return Descriptor(-1);
}

Descriptor connect_or_throw(const KeeperPeer& peer) {
  std::string problem;
  Descriptor connection = connect_to(peer, problem);
  if (connection.get() < 0)
    throw SaveError("the keeper of host " + peer.host + " cannot be reached (port " +
                    std::to_string(peer.port) + "): " + problem);
  return connection;
}

std::string digest_text(checkpoint::ChunkDigester& digester) {
  return checkpoint::file_digest("", digester.finish()).hex();
}

}  // namespace

PeerConnection::PeerConnection(const KeeperPeer& peer)
    : name_("the keeper of host " + peer.host), connection_(connect_or_throw(peer)) {
  begin_tokens();
  send({peer.token});
  if (receive() != std::vector<std::string>{peer.answer})
    throw SaveError(name_ + " is not the one of this job");
  end_tokens();
}

PeerConnection::PeerConnection(Descriptor connection, const std::string& token,
                               const std::string& answer)
    : name_("another keeper"), connection_(std::move(connection)) {
  begin_tokens();
  if (receive() != std::vector<std::string>{token})
    throw SaveError("a process without the token of this keeper");
  send({answer});
  end_tokens();
}

void PeerConnection::begin_tokens() {
  longest_ = longest_token;
  set_limit(token_seconds);
  deadline_ = Clock::now() + std::chrono::seconds(token_seconds);
}

void PeerConnection::end_tokens() {
  longest_ = longest_message;
  set_limit(message_seconds);
  deadline_.reset();
}

void PeerConnection::set_limit(int seconds) {
  const timeval limit{seconds, 0};
  ::setsockopt(connection_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  ::setsockopt(connection_.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

void PeerConnection::fail(const std::string& what, int error) const {
  throw SaveError(name_ + " " + what + ": " +
                  (error == 0        ? "the connection has ended"
                   : error == EAGAIN ? "no progress for " + std::to_string(message_seconds) + " s"
                                     : std::strerror(error)));
}

void PeerConnection::write_all(const void* data, std::size_t bytes) {
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t sent = ::send(connection_.get(), next, bytes, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) fail("takes no data", errno);
    next += sent;
    bytes -= static_cast<std::size_t>(sent);
  }
}

void PeerConnection::read_all(void* data, std::size_t bytes) {
  char* next = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t got = ::recv(connection_.get(), next, bytes, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) fail("sends no data", got < 0 ? errno : 0);
    if (deadline_ && Clock::now() > *deadline_) fail("sends its token too slowly", ETIMEDOUT);
    next += got;
    bytes -= static_cast<std::size_t>(got);
  }
}

// The number of texts, then each text's length and bytes.
void PeerConnection::send(const std::vector<std::string>& texts) {
  std::string message;
  const auto add = [&](std::uint64_t number) {
    message.append(reinterpret_cast<const char*>(&number), sizeof number);
  };
  for (const std::string& text : texts) {
    add(text.size());
    message += text;
  }
  const std::uint64_t bytes = message.size();
  write_all(&bytes, sizeof bytes);
  write_all(message.data(), message.size());
}

std::vector<std::string> PeerConnection::receive() {
  std::uint64_t bytes = 0;
  read_all(&bytes, sizeof bytes);
  if (bytes > static_cast<std::uint64_t>(longest_)) fail("sends too long a message", EMSGSIZE);
  std::string message(bytes, '\0');
  read_all(message.data(), message.size());
  std::vector<std::string> texts;
  for (std::size_t at = 0; at < message.size();) {
    std::uint64_t length = 0;
    if (message.size() - at < sizeof length) fail("sends a damaged message", EBADMSG);
    std::memcpy(&length, message.data() + at, sizeof length);
    at += sizeof length;
    if (message.size() - at < length) fail("sends a damaged message", EBADMSG);
    texts.push_back(message.substr(at, length));
    at += length;
  }
  return texts;
}

std::vector<std::string> PeerConnection::ask(const std::vector<std::string>& request) {
  send(request);
  std::vector<std::string> answer = receive();
  if (answer.empty() || answer.front() != "ok")
    throw SaveError(name_ + ": " + (answer.size() > 1 ? answer[1] : "gives no reason"));
  answer.erase(answer.begin());
  return answer;
}

void PeerConnection::send_file(const CompleteFile& file, const std::function<void()>& progress) {
  std::vector<std::byte> buffer(piece_bytes);
  checkpoint::ChunkDigester digester;
  for (std::int64_t at = 0; at < file.bytes;) {
    const ssize_t got = ::pread(file.file.get(), buffer.data(), buffer.size(), at);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) fail("is sent a file that cannot be read", got < 0 ? errno : EIO);
    digester.update(std::span(buffer).first(static_cast<std::size_t>(got)));
    write_all(buffer.data(), static_cast<std::size_t>(got));
    at += got;
    progress();
  }
  send({digest_text(digester)});
}

void PeerConnection::receive_file(const Descriptor& file, std::int64_t bytes,
                                  const std::function<void()>& progress) {
  std::vector<std::byte> buffer(piece_bytes);
  checkpoint::ChunkDigester digester;
  for (std::int64_t at = 0; at < bytes;) {
    const auto piece =
        std::span(buffer).first(static_cast<std::size_t>(std::min(bytes - at, std::ssize(buffer))));
    read_all(piece.data(), piece.size());
    digester.update(piece);
    for (std::size_t done = 0; done < piece.size();) {
      const ssize_t written = ::pwrite(file.get(), piece.data() + done, piece.size() - done,
                                       at + static_cast<std::int64_t>(done));
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) fail("sends a file that cannot be written", errno);
      done += static_cast<std::size_t>(written);
    }
    at += std::ssize(piece);
    progress();
  }
  const std::string own = digest_text(digester);
  if (receive() != std::vector<std::string>{own}) fail("sends a file whose bytes changed", EBADMSG);
}

Descriptor listen_to_peers(int& port) {
  Descriptor listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_addr.s_addr = htonl(INADDR_ANY);
  socklen_t length = sizeof any;
  if (listener.get() < 0 ||
      ::bind(listener.get(), reinterpret_cast<sockaddr*>(&any), length) != 0 ||
      ::listen(listener.get(), SOMAXCONN) != 0 ||
      ::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&any), &length) != 0)
    return Descriptor(-1);
  port = ntohs(any.sin_port);
  return listener;
}

}  // namespace zero::tool
