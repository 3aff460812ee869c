// Finds the known key that was probably meant by an unknown key.
#include <algorithm>

#include "config_schemas/keys.h"
#include "zero/base/spelling.h"

namespace zero::config_schemas {
namespace {

constexpr std::size_t longest = 96;  // compared characters of a path

// "num_warmup_steps" and "warmup_num_steps" have the same words.
std::string sorted_words(std::string_view name) {
  std::vector<std::string_view> words;
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find('_', begin), name.size());
    words.push_back(name.substr(begin, end - begin));
    begin = end + 1;
  }
  std::ranges::sort(words);
  std::string result;
  for (const auto word : words) result += std::string(word) + "_";
  return result;
}

std::size_t distance_of(std::string_view name, std::string_view known) {
  return std::min(edit_distance(name, known),
                  edit_distance(sorted_words(name), sorted_words(known)) + 1);
}

// Returns the largest edit distance from the known name that counts as a typing error.
std::size_t allowed_distance(std::string_view name, std::string_view known) {
  const std::size_t length = std::max(name.size(), known.size());
  return length < 4 ? 0 : length < 8 ? 1 : length < 16 ? 2 : 3;
}

// Returns true for "overlap" of "overlap_comm" and "max_live" of "max_live_parameters", since whole
// words match most of the name, and for "gradient_clip" of "gradient_clipping", since nearly all
// letters match.
bool is_part(std::string_view name, std::string_view known) {
  const bool two_words = name.find('_') != std::string_view::npos;
  if (known.starts_with(name) && 4 * name.size() >= 3 * known.size()) return true;
  if (known.starts_with(name) && known.substr(name.size()).starts_with('_'))
    return two_words || 2 * name.size() > known.size();
  return two_words && known.ends_with(name) &&
         known.substr(0, known.size() - name.size()).ends_with('_');
}

// Names that many programs use, with differing meanings.
bool is_common(std::string_view name) {
  constexpr std::string_view names[] = {
      "block_size",  "deterministic", "device",     "dtype", "enabled", "job_name", "mode",
      "output_path", "params",        "pin_memory", "ratio", "type",    "writer"};
  return std::ranges::find(names, name) != std::ranges::end(names);
}

// Returns the path with the spellings of the table, as far as its sections are known.
std::string table_path(std::string_view path) {
  std::string known;
  while (true) {
    const std::string_view name = path.substr(0, path.find('.'));
    const Key* key = find_key(known, name);
    if (key == nullptr || name.size() == path.size()) return join(known, path);
    known = key->path;
    path.remove_prefix(name.size() + 1);
  }
}

// Rates every spelling in the table.
class Guesser {
 public:
  Guesser(const std::string& path, bool anywhere)
      : wanted_(lower_case(path)),
        section_(section_of(wanted_)),
        name_(last_name(wanted_)),
        anywhere_(anywhere) {}

  Guess run() {
    for (const auto& [path, key] : spellings())
      if (last_name(path) != "*") rate(path, key);
    if (const auto star = best_.path.find('*'); star != std::string::npos)
      best_.path.replace(star, 1, "NAME");
    return best_;
  }

 private:
  using Kind = Guess::Kind;

  void rate(const std::string& path, const Key* key) {
    const std::string_view known = last_name(path);
    if (key->meaning == never_read && (name_ != known || key->status != Status::refused)) return;
    const std::size_t distance = distance_of(name_, known);
    const bool near = distance <= allowed_distance(name_, known);
    if (path == wanted_ || (section_of(path) == section_ && near) ||
        (name_ == known && is_slip_of_section(section_of(path))))
      offer(Kind::slip, distance, path, key);
    else if (section_of(path) == section_ && is_part(name_, known) && !key->removed)
      offer(Kind::part, distance, path, key);
    else if (name_ == known && can_stand_for(path, key))
      offer(Kind::elsewhere, remoteness(path, key), path, key);
    else if (near && (anywhere_ || (name_.size() >= 8 && can_stand_for(path, key))))
      // Among names at the same distance, one that the text begins with is more likely.
      offer(Kind::similar, 2 * distance + (name_.starts_with(last_name(path)) ? 0 : 1), path, key);
  }

  bool is_slip_of_section(std::string_view section) const {
    return !section_.empty() && !section.empty() &&
           edit_distance(section_, section) <= allowed_distance(section_, section);
  }

  // Common names match only inside the same section.
  bool can_stand_for(std::string_view path, const Key* key) const {
    if (path.find('*') != std::string_view::npos) return false;
    if (!section_.empty() && lies_inside(path)) return true;
    const std::string_view name = last_name(path);
    const bool one_word = name.find('_') == std::string_view::npos;
    return !is_common(name) && !(one_word && key->status == Status::no_effect);
  }
  bool lies_inside(std::string_view path) const {
    return path.starts_with(section_) && path.substr(section_.size()).starts_with('.');
  }

  // Among keys with the same name, prefers an `honored` key in a nearby section.
  std::size_t remoteness(std::string_view path, const Key* key) const {
    return (key->status == Status::honored ? 0 : 1000) + (lies_inside(path) ? 0 : path.size());
  }

  void offer(Kind kind, std::size_t score, const std::string& path, const Key* key) {
    const bool better =
        best_.kind == Kind::none || kind < best_.kind || (kind == best_.kind && score < score_);
    if (!better) return;
    best_ = {kind, key, path};
    score_ = score;
  }

  std::string wanted_;
  std::string_view section_, name_;
  bool anywhere_;
  Guess best_;
  std::size_t score_ = 0;
};

}  // namespace

Guess guess_key(std::string_view path) {
  return Guesser(table_path(path.substr(0, longest)), false).run();
}

Guess guess_name(std::string_view name) {
  return Guesser(std::string(name.substr(0, longest)), true).run();
}

}  // namespace zero::config_schemas
