/* A name service that does not answer: what is no address in digits takes for ever. */
#include <dlfcn.h>
#include <netdb.h>
#include <unistd.h>

__attribute__((visibility("default"))) int getaddrinfo(const char *restrict name, const char *restrict service,
                                                       const struct addrinfo *restrict hints,
                                                       struct addrinfo **restrict found)
{
    int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **) = NULL;
    if (hints && hints->ai_flags & AI_NUMERICHOST) {
        *(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
        return real(name, service, hints, found);
    }
    for (;;) {
        pause();
    }
}
