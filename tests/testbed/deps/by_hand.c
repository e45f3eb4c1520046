/* Ten functions. Behind the mark of each statement of a function: what it depends on, written by hand.
   f1 is flow from statement 1 (the first), a1 anti, o1 output; l1: the order alone. A declaration is what gives a name
   its meaning: what uses the name comes after it. "all": it depends on each before it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define N 64

struct node { int value; struct node *next; };
struct particle { double x, v, m; };
typedef double real;

void stencil(double h) {
    double a[N], b[N];                                      //:
    int i;                                                  //:
    for (i = 0; i < N; i++) a[i] = h * i;                   //: f1 f2
    for (i = 1; i < N - 1; i++) b[i] = h * (a[i-1] + a[i+1]); //: f1 f2 f3
    a[0] = b[1];                                            //: f1 f3 o3 f4 a4
    update(&a[0], h);                                       //: f1 f3 o3 a4 f5 o5
    b[0] = 0;                                               //: f1 f4 o4 a5
}

double factors(double (*restrict m)[N], int n) {
    double det = 1, scale = 2;                              //:
    for (int k = 0; k < n; k++)                             //:
        for (int i = k + 1; i < n; i++) m[i][k] /= m[k][k];
    for (int k = 0; k < n; k++) det *= m[k][k];             //: f1 o1 f2
    scale = sqrt(scale);                                    //: f1 o1
    return det * scale;                                     //: all
}

void butterfly(double *restrict re, double *restrict im, int half) {
    double w = cos(M_PI / half), c;                         //:
    for (int i = 0; i < half; i++) re[i] += re[i + half];   //:
    for (int i = 0; i < half; i++) im[i] -= w * im[i + half]; //: f1
    c = re[0];                                              //: f1 f2
    im[0] = c;                                              //: f1 a3 o3 f4
}

int histogram(const double *x, int n) {
    int counts[10] = {0}, most = 0, empty = 0;              //:
    for (int i = 0; i < n; i++) counts[(int)x[i]]++;        //: f1 o1
    for (int i = 0; i < 10; i++) if (counts[i] > most) most = counts[i]; //: f1 o1 f2
    for (int i = 0; i < 10; i++) empty += counts[i] == 0;   //: f1 o1 f2
    return most + empty;                                    //: all
}

size_t strings(const char *name) {
    char path[N] = "", copy[N];                             //:
    strcpy(path, "/tmp/");                                  //: f1 o1
    memset(copy, 0, sizeof copy);                           //: f1
    strcat(path, name);                                     //: f1 o1 f2 a2 o2
    memcpy(copy, path, 10);                                 //: f1 f2 f4 o3
    size_t length = strlen(path);                           //: f1 f2 f4
    puts(copy);                                             //: f1 f3 f5
    return length;                                          //: all
}

int list(struct node *first) {
    struct node *at = first;                                //:
    int sum = 0, count = 0;                                 //:
    while (at) { sum += at->value; at = at->next; }         //: f1 o1 f2 o2
    count++;                                                //: f2 o2
    first->value = sum;                                     //: f2 f3 a3
    return count;                                           //: all
}

void product(const double *a, const double *b, double *restrict c, double *d, int n) {
    for (int i = 0; i < n; i++)                             //:
        for (int j = 0; j < n; j++) c[i * n + j] = a[i] * b[j];
    double trace = 0;                                       //:
    for (int i = 0; i < n; i++) d[i] = 2 * a[i];            //: a1
    for (int i = 0; i < n; i++) trace += c[i * n + i];      //: f1 f2 o2
    d[0] = trace;                                           //: a1 f2 a3 o3 f4
}

long prefix(int n) {
    long *sums = malloc(n * sizeof *sums);                  //:
    long *ones = calloc(n, sizeof *ones);                   //:
    for (int i = 0; i < n; i++) ones[i] = 1;                //: f2
    for (int i = 0; i < n; i++) sums[i] = i;                //: f1
    for (int i = 1; i < n; i++) sums[i] += sums[i - 1];     //: f1 f4 o4
    long last = sums[n - 1] + ones[0];                      //: f1 f2 f3 f4 f5
    free(ones);                                             //: f2 f3 o3 a6
    free(sums);                                             //: f1 f4 o4 f5 o5 a6
    return last;                                            //: all
}

void push(struct particle *p, int n, real dt) {
    struct particle one = {0, 1, 2}, *q = p;                //:
    one.x += dt;                                            //: f1 o1
    for (int i = 0; i < n; i++) p[i].x += p[i].v * dt;      //:
    q->x = one.x;                                           //: f1 f2 a3 o3 f3
    p[0] = one;                                             //: f1 f2 a3 o3 o4
}

void output(const char *name, const double *x, int n) {
    FILE *file = fopen(name, "w");                          //:
    double sum = 0;                                         //:
    for (int i = 0; i < n; i++) sum += x[i];                //: f1 f2 o2
    fprintf(file, "%g\n", sum);                             //: f1 a1 o1 f2 f3
    printf("%d written\n", n);                              //: f1 a1 o1 f4 a4 o4
    sum = 0;                                                //: f2 o2 o3 a3 a4
    fclose(file);                                           //: f1 a1 o1 a3 f4 a4 o4 f5 a5 o5
}
