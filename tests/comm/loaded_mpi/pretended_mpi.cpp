// A library with the name of an MPI's, and no ranks.
#include <cstring>

extern "C" {

int MPI_Initialized(int* flag) {
  *flag = 0;
  return 0;
}

int MPI_Get_library_version(char* text, int* length) {
  std::strcpy(text, PRETENDED);
  *length = static_cast<int>(std::strlen(text));
  return 0;
}

}  // extern "C"
