// As much of Apple's Foundation as apple_gpu.mm names, declared after its documentation: for a check of that file's syntax
// and types where there is no macOS. It says nothing about Apple's own headers.
#pragma once

using NSUInteger = unsigned long;
using BOOL = bool;
#define YES true
#define NO false
#define nil nullptr

__attribute__((objc_root_class))
@interface NSObject
+ (instancetype)new;
@end

@interface NSString : NSObject
@property(readonly) const char* UTF8String;
+ (instancetype)stringWithUTF8String:(const char*)text;
@end

@interface NSError : NSObject
@property(readonly, copy) NSString* localizedDescription;
@end

@interface NSURL : NSObject
+ (NSURL*)fileURLWithPath:(NSString*)path;
@end
