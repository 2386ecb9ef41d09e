/* A libcuda.so.1 for tests on machines without a GPU: it answers every call with success and prints what a test
 * needs to see, among it the bytes of the arguments of a launch. STUB_FAIL=<call>:<code> makes one call fail. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int outcome(const char *call) {
  const char *fail = getenv("STUB_FAIL");
  size_t length = strlen(call);
  if (fail && !strncmp(fail, call, length) && fail[length] == ':') {
    int code = atoi(fail + length + 1);
    if (code == 201) unsetenv("STUB_FAIL"); /* a missing context: once */
    return code;
  }
  return 0;
}

static int quiet(void) { return 0; }
static int init(unsigned flags) { return outcome("cuInit"); }
static int count(int *n) { *n = 1; return 0; }
static int set_current(void *c) { printf("cuCtxSetCurrent\n"); return 0; }
static int get_function_attribute(int *value, int attribute, void *f) { *value = attribute == 1 ? 1024 : 40; return 0; }
static int set_function_attribute(void *f, int attribute, int value) {
  printf("cuFuncSetAttribute %d %d\n", attribute, value);
  return outcome("cuFuncSetAttribute");
}
/* Compute capability 9.0; every other attribute is told apart by its number. */
static int device_attribute(int *value, int attribute, int device) {
  *value = attribute == 75 ? 9 : attribute == 76 ? 0 : attribute * 1024;
  return 0;
}
/* As the real one: nothing is said of what follows the name in the buffer. */
static int device_name(char *name, int length, int device) {
  memset(name, 0, length);
  name[length - 1] = ' ';
  strcpy(name, "NVIDIA Stub");
  return 0;
}
static int device_memory(size_t *bytes, int device) { *bytes = (size_t)1 << 36; return 0; }
static int error_string(int code, const char **text) { *text = "described"; return 0; }
static int load(void **library) { *library = (void *)0x10; printf("load\n"); return outcome("cuLibraryLoadData"); }
static int get_kernel(void **kernel) { *kernel = (void *)0x20; return outcome("cuLibraryGetKernel"); }
static int get_function(void **function) { *function = (void *)0x30; return 0; }

/* STUB_SIZES holds the size of each parameter of the kernel. */
static int parameter(void *function, size_t index, size_t *offset, size_t *size) {
  const char *sizes = getenv("STUB_SIZES");
  for (size_t i = 0; sizes && i < index; i++) sizes = (sizes = strchr(sizes, ',')) ? sizes + 1 : NULL;
  if (!sizes) return 1;
  *offset = 0;
  *size = atoi(sizes);
  return 0;
}

static void print_arguments(void **params) {
  char sizes[256] = "";
  if (getenv("STUB_SIZES")) strcpy(sizes, getenv("STUB_SIZES"));
  for (char *size = strtok(sizes, ","); size; size = strtok(NULL, ","), params++) {
    unsigned char *bytes = *params;
    printf(" %d:", (int)((uintptr_t)bytes % 64 % (atoi(size) > 16 ? 64 : atoi(size))));
    for (int i = 0; i < atoi(size); i++) printf("%02x", bytes[i]);
  }
  printf("\n");
}

static int launch(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                  unsigned shared, void *stream, void **params, void **extra) {
  int code = outcome("cuLaunchKernel");
  if (code || getenv("STUB_QUIET")) return code;
  printf("launch %p grid %u %u %u block %u %u %u shared %u stream %p args", f, gx, gy, gz, bx, by, bz, shared, stream);
  print_arguments(params);
  return 0;
}

struct attribute { unsigned id; char pad[4]; unsigned value[16]; };
struct config { unsigned grid[3], block[3], shared; void *stream; struct attribute *attributes; unsigned count; };
static int launch_extended(const struct config *c, void *f, void **params, void **extra) {
  printf("extended grid %u block %u stream %p", c->grid[0], c->block[0], c->stream);
  for (unsigned i = 0; i < c->count; i++)
    printf(" attribute %u = %u %u", c->attributes[i].id, c->attributes[i].value[0], c->attributes[i].value[1]);
  printf(" args");
  print_arguments(params);
  return outcome("cuLaunchKernelEx");
}

static int active_clusters(int *count, void *f, const struct config *c) {
  printf("cuOccupancyMaxActiveClusters\n");
  *count = atoi(getenv("STUB_CLUSTERS")) / (int)c->attributes[c->count - 1].value[0];
  return outcome("cuOccupancyMaxActiveClusters");
}

int cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, void *status) {
  static const struct { const char *name; void *function; } table[] = {
      {"cuGetProcAddress", cuGetProcAddress_v2}, {"cuInit", init}, {"cuFuncGetParamInfo", parameter}, {"cuDeviceGetAttribute", device_attribute},
      {"cuDeviceGetName", device_name}, {"cuDeviceTotalMem", device_memory}, {"cuDeviceGetCount", count},
      {"cuCtxSetCurrent", set_current}, {"cuFuncGetAttribute", get_function_attribute},
      {"cuFuncSetAttribute", set_function_attribute}, {"cuGetErrorString", error_string},
      {"cuLibraryLoadData", load}, {"cuLibraryGetKernel", get_kernel}, {"cuKernelGetFunction", get_function},
      {"cuLaunchKernel", launch}, {"cuLaunchKernelEx", launch_extended},
      {"cuOccupancyMaxActiveClusters", active_clusters}};
  *function = (void *)quiet;
  for (size_t i = 0; i < sizeof table / sizeof *table; i++)
    if (!strcmp(name, table[i].name)) *function = table[i].function;
  return 0;
}
int cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void *stream, void **params, void **extra) {
  return launch(f, gx, gy, gz, bx, by, bz, shared, stream, params, extra);
}
