// Advice in messages, in the words of the program's language: C++, or Python if the package has
// loaded this library.
#pragma once

#include <string>

namespace zero::pytorch {

enum class Language { cpp, python };
inline Language language = Language::cpp;

inline std::string advice(const char* cpp, const char* python) {
  return language == Language::cpp ? cpp : python;
}

}  // namespace zero::pytorch
