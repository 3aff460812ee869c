// Gives cudnn-frontend the CUDA runtime that this program is linked with. The frontend opens
// libcudart.so by name; the file may be missing, and otherwise would be a second copy of the
// runtime. The frontend calls libdl unqualified from its namespace, so it calls the functions
// below, if declared before its headers.
#pragma once

namespace cudnn_frontend::detail {

// Like libdl's functions, except for "libcudart.so." with the major version of our headers:
// dlopen() returns a handle for dlsym() to find the linked functions that the frontend needs to
// plan and run graphs on a stream.
void* dlopen(const char* file, int mode);
void* dlsym(void* library, const char* name);

}  // namespace cudnn_frontend::detail
