#include "examples/gpt/data/word_source.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <string>

#include "examples/gpt/model/random.h"

namespace gpt {
namespace {

// Words by falling frequency.
constexpr std::array<std::string_view, 64> lexicon = {
    "the",   "of",    "and",   "to",    "in",   "a",    "is",    "that",  "for",  "it",   "as",
    "was",   "with",  "be",    "by",    "on",   "not",  "he",    "his",   "but",  "at",   "are",
    "this",  "have",  "from",  "which", "one",  "you",  "were",  "all",   "her",  "she",  "there",
    "would", "their", "we",    "him",   "been", "has",  "when",  "who",   "will", "no",   "more",
    "if",    "out",   "so",    "up",    "said", "what", "its",   "about", "than", "into", "them",
    "can",   "only",  "other", "time",  "new",  "some", "could", "these", "two"};

// A position in the text: the letters since the last space. Edges are the letters that may follow,
// with probabilities.
struct Node {
  double reached = 0;  // probability that a word passes this node
  std::map<char, std::size_t> next;
};

std::vector<double> probabilities() {
  std::vector<double> p;
  double total = 0;
  for (std::size_t rank = 1; rank <= lexicon.size(); ++rank)
    total += p.emplace_back(1.0 / static_cast<double>(rank));
  for (double& value : p) value /= total;
  return p;
}

// Returns the lexicon as a tree; a word's last edge, its space, leads back to the root, node 0.
std::vector<Node> letter_tree() {
  std::vector<Node> nodes(1);
  const std::vector<double> p = probabilities();
  for (std::size_t word = 0; word < lexicon.size(); ++word) {
    std::size_t at = 0;
    nodes[0].reached += p[word];
    for (const char letter : lexicon[word]) {
      const auto [edge, made] = nodes[at].next.try_emplace(letter, nodes.size());
      at = edge->second;
      if (made) nodes.emplace_back();
      nodes[at].reached += p[word];
    }
    nodes[at].next.emplace(' ', 0);
  }
  return nodes;
}

// Returns the probability of each edge: letters that continue a word, and the remainder for the
// space.
std::vector<std::pair<std::size_t, double>> edges(const std::vector<Node>& nodes,
                                                  const Node& node) {
  std::vector<std::pair<std::size_t, double>> result;
  double rest = 1;
  for (const auto& [letter, to] : node.next)
    if (letter != ' ') {
      result.emplace_back(to, nodes[to].reached / node.reached);
      rest -= result.back().second;
    }
  if (node.next.contains(' ')) result.emplace_back(0, rest);
  return result;
}

}  // namespace

WordSource::WordSource(std::uint64_t seed) : seed_(seed), cumulative_(probabilities()) {
  for (std::size_t i = 1; i < cumulative_.size(); ++i) cumulative_[i] += cumulative_[i - 1];
}

std::span<const std::string_view> WordSource::words() {
  return lexicon;
}

std::size_t WordSource::draw(double uniform) const {
  const auto at = std::lower_bound(cumulative_.begin(), cumulative_.end(), uniform);
  return std::min(static_cast<std::size_t>(at - cumulative_.begin()), lexicon.size() - 1);
}

void WordSource::read(std::int64_t sample, std::span<std::int32_t> text) const {
  const CounterRandom random(seed_, "words", static_cast<std::uint64_t>(sample));
  std::size_t filled = 0;
  for (std::uint64_t word = 0; filled < text.size(); ++word) {
    for (const char letter : lexicon[draw(random.uniform(word))])
      if (filled < text.size()) text[filled++] = static_cast<unsigned char>(letter);
    if (filled < text.size()) text[filled++] = ' ';
  }
}

double WordSource::entropy(std::int64_t targets) const {
  const std::vector<Node> nodes = letter_tree();
  std::vector<std::vector<std::pair<std::size_t, double>>> follow;
  std::vector<double> own;  // entropy of the letter that follows a node
  for (const Node& node : nodes) {
    follow.push_back(edges(nodes, node));
    double entropy = 0;
    for (const auto& [to, p] : follow.back())
      if (p > 0) entropy -= p * std::log(p);
    own.push_back(entropy);
  }
  std::vector<double> at(nodes.size()), next(nodes.size());
  at[0] = 1;
  double total = 0;
  for (std::int64_t position = 0; position <= targets; ++position) {
    std::fill(next.begin(), next.end(), 0);
    for (std::size_t node = 0; node < nodes.size(); ++node) {
      if (position > 0) total += at[node] * own[node];
      for (const auto& [to, p] : follow[node]) next[to] += at[node] * p;
    }
    at.swap(next);
  }
  return total / static_cast<double>(targets);
}

}  // namespace gpt
